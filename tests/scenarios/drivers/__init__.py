"""The stock clients behind one small interface, so that every scenario is written once."""
