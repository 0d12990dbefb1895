"""The planted faults fit the source: each changes one place of a file, and the result is Python."""

from __future__ import annotations

from collections import Counter

import pytest

from headpond.sim.checks import CHECKS
from tests.sim.plant import SOURCE, planted_text
from tests.sim.planted import BROKER, CLIENT, FAULTS, PRODUCER, STORAGE, PlantedFault
from tests.sim.planted_scenarios import GUARDS

BESIDE_CHECKS = {"liveness", "unhandled", "recovered", "replaced", "limits"}


@pytest.mark.parametrize("fault", [*FAULTS, *GUARDS], ids=lambda fault: f"{fault.scenario} {fault.name}")
def test_a_fault_changes_one_place_and_the_source_still_compiles(fault: PlantedFault) -> None:
    source = (SOURCE / "headpond" / fault.file).read_text()
    compile(planted_text(source, fault), fault.file, "exec")
    assert fault.new != fault.old
    assert fault.breaks and set(fault.breaks) <= {*CHECKS, *BESIDE_CHECKS}


def test_every_name_is_used_once_and_every_layer_has_its_faults() -> None:
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1
    assert len(STORAGE) >= 20 and len(BROKER) >= 25 and len(PRODUCER) >= 12 and len(CLIENT) >= 13
