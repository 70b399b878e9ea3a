"""What is done, and what is known of it: the loop that carries commands out, on one thread.

event_loop, command_runner     the loop; a command each
moves, warmups   how far state has moved
control          the durable ledger
blame            which rows failed
clock            the time, and how to wait
notices, observers     what happened, and who receives it: metrics, events_log
status, progress, time_text, live_line     what users see
"""
