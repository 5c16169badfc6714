//! Replicas that come, fall silent, die and come back, on a paused clock and a directory in memory.
