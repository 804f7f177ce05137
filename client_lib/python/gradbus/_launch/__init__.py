"""How ranks that a launcher has started become ranks of one job."""
