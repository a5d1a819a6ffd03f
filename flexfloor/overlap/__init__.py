"""Training on released ranks while the others still generate."""
