"""Queries over the views, in processes of their own.

statement    one SELECT, and its limits
process      the process, as the service sees it; child: as it sees itself
"""
