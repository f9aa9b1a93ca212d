"""A query's checkpoint in a topic (state.topic): saved under the decisions of its batches, and read back."""
