"""Texts for people: errors name the line that the user wrote, and neither errors nor logs show secrets."""
