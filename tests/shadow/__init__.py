"""Tests of shadows: a new version of a query beside the running one."""
