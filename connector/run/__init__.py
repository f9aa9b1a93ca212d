"""A run of the commit protocol's rules on a cluster: commands carried out, memory, a guard, markers."""
