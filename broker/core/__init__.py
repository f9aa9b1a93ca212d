"""The broker as a whole: opens the rooms in their order, runs what is periodic, closes them in reverse."""
