"""Parameters on a GPU: how their buckets reach Gradbus."""
