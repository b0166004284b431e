"""Clients, threads, memory and GPUs where tasks run, and maps with their sums."""
