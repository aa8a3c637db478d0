"""The on-call drill: sick systems made by the simulator, their metrics, and what an action does.

Nothing here is a table of outcomes: which setting is wrong is read off the settings, and what an
action would have done is simulated with the settings that the action leaves behind.
"""
