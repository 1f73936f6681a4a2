"""`reprise refit push`, `pull` and `serve-relay`; what they need beyond the codec is imported when they run."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

import click

from reprise.refit.checkpoints.streams import MAX_LEVEL
from reprise.refit.operations import OPERATIONS

PATH = click.Path(path_type=str)


@click.command()
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@click.argument("url")
@click.option("--op", type=click.Choice(OPERATIONS), default="add", show_default=True, help="How words are stored.")
@click.option("--level", type=click.IntRange(1, MAX_LEVEL), default=1, show_default=True, help="zstd level.")
@click.option("--force", is_flag=True, help="Replace a delta that is there.")
def push(old, new, url, op, level, force):
    """Put the delta that turns checkpoint OLD into NEW at URL.

    URL is a folder, s3://bucket/prefix, gs://, az://, or any other that fsspec opens. Endpoint and credentials come
    from the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and so on).
    """
    from reprise.refit.cli import bar, one_sentence, say, size

    with one_sentence(), transports():
        from reprise.refit.transport.places import open_place
        from reprise.refit.transport.push_pull import push_checkpoint

        done = push_checkpoint(old, new, open_place(url), op, level, force, bar)
    share = f" ({done.delta_bytes / done.new_bytes:.2%} of NEW)" if done.new_bytes else ""
    say(f"{url}: {size(done.delta_bytes)}{share}")


@click.command()
@click.argument("old", type=PATH)
@click.argument("url")
@click.option("-o", "--output", type=PATH, required=True, help="The checkpoint to write: a file or folder, as NEW was.")
@click.option("--force", is_flag=True, help="Replace an existing output.")
def pull(old, url, output, force):
    """Rebuild NEW from OLD and the delta at URL, byte for byte or not at all."""
    from reprise.refit.cli import bar, one_sentence, say, size

    with one_sentence(), transports():
        from reprise.refit.transport.places import open_place
        from reprise.refit.transport.push_pull import pull_checkpoint

        nbytes = pull_checkpoint(old, open_place(url), output, force, bar)
    say(f"{output}: {size(nbytes)}, equal to NEW byte for byte")


@click.command("serve-relay")
@click.argument("index", type=click.IntRange(0))
@click.argument("addresses", nargs=-1, required=True)
@click.option("--store", type=PATH, required=True, help="Folder of the resident weights that payloads change.")
@click.option("--bind", help="Address to listen at; by default that of INDEX.")
@click.option("--timeout", type=click.FloatRange(0.01), default=60.0, show_default=True, help="Seconds without answer.")
def serve_relay(index, addresses, store, bind, timeout):
    """Be receiver INDEX of the relay tree of ADDRESSES (tcp://host:port each), until interrupted.

    Messages are neither encrypted nor authenticated: listen only where the network keeps others out.
    """
    from reprise.refit.cli import one_sentence

    with one_sentence(), transports():
        from reprise.refit.recovery.resident import ResidentStore
        from reprise.refit.transport.intake import Intake
        from reprise.refit.transport.relay_node import RelayNode

        with ResidentStore(store) as weights:
            node = RelayNode(index, addresses, Intake(weights), bind=bind, timeout=timeout)
            stop = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stop.set())
            held = weights.status()
            click.echo(f"receiver {index} of {len(addresses)} at {bind or addresses[index]}: version {held.version}")
            node.run(stop)


@contextlib.contextmanager
def transports() -> Iterator[None]:
    """A missing package as a sentence that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("reprise"):
            raise
        raise click.ClickException(f"{error.name} is not installed: pip install 'reprise[transports]'") from None
