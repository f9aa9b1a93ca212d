"""A micro-batch of many tasks on a cluster, computed from costs measured one by one: docs/scale.md."""
