"""Methods for columns split over parties, with the labels at one party."""
