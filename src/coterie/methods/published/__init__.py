"""Methods in the form in which their papers state them."""
