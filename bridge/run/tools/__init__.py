"""Tools that are run here: offered to a backend's model, and called when it asks for them."""
