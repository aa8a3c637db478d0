"""Lab 06, MoE, MLA and MTP: the latent's place, the exchange, a balancer, and where EP loses."""

from __future__ import annotations

from minilab.lab.exercises.lab06.absorb import ABSORB
from minilab.lab.exercises.lab06.balancer import BALANCER
from minilab.lab.exercises.lab06.cache import CACHE
from minilab.lab.exercises.lab06.exchange import EXCHANGE
from minilab.lab.exercises.lab06.fullest import FULLEST
from minilab.lab.exercises.lab06.mtp import MTP
from minilab.lab.exercises.lab06.turn import TURN

EXERCISES = (CACHE, EXCHANGE, BALANCER, TURN, MTP, FULLEST, ABSORB)
