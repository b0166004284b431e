"""The Dask side, a file a stage, in the order data moves: io, partition, rounds, predict."""
