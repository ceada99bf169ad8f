"""Plots for rqt: of deadlines, and rqt_plot with topics that come later."""
