"""One module for each experiment: how it is measured, told and drawn."""
