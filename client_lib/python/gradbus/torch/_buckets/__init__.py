"""What is registered with Gradbus: buckets of gradients or parameters, and the place of each parameter in them."""
