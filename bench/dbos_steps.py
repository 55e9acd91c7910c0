"""The other side of `toolyard-bench cluster-dbos`: workflows of DBOS whose steps do nothing. Reads "CLIENTS STEPS" from its
input, runs that many workflows of so many steps at once, and answers with the seconds that this took."""

import sys
import time

from dbos import DBOS

DBOS(config={"name": "bench", "system_database_url": sys.argv[1].replace("postgres://", "postgresql://"),
             "run_admin_server": False, "log_level": "ERROR"})


@DBOS.step()
def step(number):
    return number


@DBOS.workflow()
def workflow(count):
    for number in range(count):
        step(number)
    return count


def main():
    DBOS.launch()
    for line in sys.stdin:
        clients, steps = (int(word) for word in line.split())
        began = time.perf_counter()
        handles = [DBOS.start_workflow(workflow, steps) for _ in range(clients)]
        for handle in handles:
            handle.get_result()
        print(time.perf_counter() - began, flush=True)


main()
