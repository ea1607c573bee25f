"""The small objects of a `Kind` of problem. Each file has one base class with sensible defaults.

kind.data       reads and checks the tables of parties                    `Data`
kind.problems   checks a problem and completes it                         `Problems`
kind.local      computes the loss of an agent's own rows                  `Local`
kind.proof      introduces agents and certifies a point                   `Proof`
kind.models     assembles a model from points, and takes it apart         `Models`
kind.report     describes problems and models in words                    `Report`
kind.stats      evaluates models and computes standard errors             `Stats`
kind.labels     names the columns of labels                           `data.labels.Labels`
"""
