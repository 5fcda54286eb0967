// A multi-layer perceptron over observation and goal, as GoalMlp in pchid/policies.py.
// In: exported weights, two arrays of numbers. Out: a score for each action.

class Perceptron {
  constructor(exported) {
    this.agreement = exported.agreement;
    this.observation = exported.observation;
    this.goal = exported.goal;
    this.layers = exported.layers.map(({ weight, bias }) => ({
      inputs: weight.shape[1],
      weight: unpacked(weight),
      bias: unpacked(bias),
    }));
  }

  scores(observation, goal) {
    const seen = normalised(observation, this.observation);
    const wanted = normalised(goal, this.goal);
    const product = this.agreement ? seen.map((number, i) => single(number * wanted[i])) : [];
    let values = Float32Array.from([...seen, ...wanted, ...product]);
    this.layers.forEach(({ inputs, weight, bias }, depth) => {
      const outputs = bias.map((start, output) => {
        let sum = start; // in double precision, and rounded once: nearer to the truth than any order in single
        for (let i = 0; i < inputs; i++) sum += weight[output * inputs + i] * values[i];
        return sum;
      });
      values = depth < this.layers.length - 1 ? outputs.map((number) => Math.max(number, 0)) : outputs;
    });
    return values;
  }
}

/** Shifted and scaled in double precision, clipped, then rounded to single. */
function normalised(numbers, { mean, deviation, clip }) {
  return Float32Array.from(numbers, (number, i) => {
    return Math.min(Math.max((number - mean[i]) / deviation[i], -clip), clip);
  });
}
