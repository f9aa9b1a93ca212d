"""Runs the commit protocol's rules on a cluster: carries out commands, remembers and guards a run."""
