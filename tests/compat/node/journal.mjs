// How a member tells what happens to it: one JSON line an event, as tests/compat/groups/journal.py has it.
// Its standard input is its life line: with its end the member closes.
export const commitEveryMs = 100;

export class Journal {
  owned = new Set();
  closing = false;

  constructor(close) {
    process.stdin.on("end", () => {
      this.closing = true;
      close();
    });
    process.stdin.resume();
  }

  write(kind, what) {
    process.stdout.write(`${JSON.stringify([kind, Number(process.hrtime.bigint()), what])}\n`);
  }

  assigned(partitions) {
    const fresh = partitions.filter((partition) => !this.owned.has(partition));
    fresh.forEach((partition) => this.owned.add(partition));
    this.write("assigned", fresh);
  }

  gaveBack(partitions, kind = "revoked") {
    const given = partitions.filter((partition) => this.owned.delete(partition));
    if (given.length) this.write(kind, given);
  }

  gaveAllBack(kind = "revoked") {
    this.gaveBack([...this.owned], kind);
  }
}
