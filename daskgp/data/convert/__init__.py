"""Conversion of tables and labelled grids in other formats to dataset stores."""
