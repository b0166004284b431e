"""Clients, threads, memory and GPUs for tasks, and maps with their sums."""
