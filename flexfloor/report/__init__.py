"""A run as one page to look at: gathered from its folder, rendered as HTML that needs no network."""
