"""Where tasks run: clients, threads, memory and GPUs, and maps with their sums."""
