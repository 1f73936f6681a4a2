"""Pictures with more to them than a notebook cell should hold; each takes the output of one compute function."""
