"""Many policies of one shape side by side: their layers, weights and sampling."""
