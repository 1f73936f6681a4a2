"""A two-action case: refund a duplicate charge, then notify its owner with the refund's id."""

from reprise.evidence.cases import parse_case
from reprise.evidence.environment import Environment


def atom(entity, field, op="eq", value=None, **more):
    return dict(entity=entity, field=field, expect=dict(op=op, value=value), **more)


def refund_data() -> dict:
    charge = {"amount": "$49.99", "duplicate": True, "status": "settled"}
    tools = [
        dict(name="read_charge", kind="information", params={"charge_id": {}}),
        dict(name="read_refund", kind="information", params={"refund_id": {}}),
        dict(name="refund", kind="consequential", params={"charge_id": {}, "amount": {}}),
        dict(name="notify", kind="consequential", params={"user": {}, "refund_id": {}}),
    ]
    refund_id = dict(action="a1", field="refund_id")
    hidden = dict(
        world={"C1": charge, "C2": dict(charge), "U1": {"name": "Ada"}},
        reads={
            "read_charge": dict(param="charge_id", fields=list(charge)),
            "read_refund": dict(param="refund_id", fields=["state"]),
        },
        effects={
            "refund": dict(
                target="charge_id",
                sets={"status": "refunded"},
                outputs={"refund_id": {"generated": "R"}},
                creates={"refund_id": {"state": "done", "amount": {"arg": "amount"}}},
            ),
            "notify": dict(target="user", outputs={"sent": True}),
        },
        requirements=[
            dict(id="duplicate", any_of=[[atom("C1", "duplicate", value=True), atom("C1", "amount", "any")]]),
            dict(id="refunded", any_of=[[atom(refund_id, "state", value="done")]]),
        ],
        actions=[
            dict(
                id="a1",
                tool="refund",
                args={"charge_id": "C1", "amount": dict(entity="C1", field="amount")},
                requires=["duplicate"],
                confirm=["refunded"],
            ),
            dict(
                id="a2", tool="notify", args={"user": "U1", "refund_id": refund_id}, requires=["refunded"], after=["a1"]
            ),
        ],
    )
    view = dict(id="refund", domain="customer_policy", protocol="v2", prompt="Refund C1, tell U1.", tools=tools)
    return dict(view=view, hidden=hidden)


def play(read="C1", confirm=True, amount="49.99", refund_id=None, extra=0):
    """A trajectory of the case with one link of the chain left out or replaced."""
    environment = Environment(parse_case(refund_data()))
    for _ in range(extra):
        environment.call("read_charge", charge_id="C2")
    if read:
        environment.call("read_charge", charge_id=read)
    made = environment.call("refund", charge_id="C1", amount=amount)
    if confirm:
        environment.call("read_refund", refund_id=made["refund_id"])
    environment.call("notify", user="U1", refund_id=refund_id or made["refund_id"])
    return environment.finish()
