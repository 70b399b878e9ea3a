"""What is decided, apart from what is done: no clock, no disk, no network.

machine      events in, commands out; `rescaling`, `migrating`: its states while state moves
states       the states and the facts they carry; `events`, `commands`: what goes in, what comes out
recovery     which version every worker can go back to
engines      which version of dbsp may go on from here
cutting      which rows the next step takes
autoscale    how many workers there should be
fills        the step that fills what a changed circuit adds
"""
