"""The ports to the machine: file system, clock, open files, and log output."""
