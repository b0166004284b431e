"""Other packages on the same rows, a file each; none is imported before it is measured."""
