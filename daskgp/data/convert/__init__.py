"""Tables and labelled grids of other formats, made a dataset store."""
