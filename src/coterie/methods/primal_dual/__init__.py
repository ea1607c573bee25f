"""Primal-dual methods for rows split over parties."""
