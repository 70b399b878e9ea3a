"""What is done, and what is known of it: the loop that carries commands out, on one thread.

shell, hands     the loop; a command each
moves, warmups   how far state has moved
control          the durable ledger
blame            which rows failed
clock            the time, and how to wait
status, shown, time_text, progress, metrics, events_log, observers     what others are told
"""
