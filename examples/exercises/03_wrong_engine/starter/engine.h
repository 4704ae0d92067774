#pragma once

#include <functional>
#include <map>
#include <vector>

// A scalar that remembers how it was made: dy/d(input) for each input.
struct Node {
  struct Edge {
    Node* input;
    double derivative;
  };
  std::vector<Edge> inputs;
  double grad = 0;
  int runs = 0;  // how often it passed its gradient on
};

// Adds the gradient of `node`, times the local derivative, to each input. For each input, calls
// `arrived(input)` afterwards.
inline void pass_on(Node& node, const std::function<void(Node&)>& arrived) {
  ++node.runs;
  for (const Node::Edge& edge : node.inputs) {
    edge.input->grad += edge.derivative * node.grad;
    arrived(*edge.input);
  }
}

// d(root)/d(node), in node.grad, for each node that root depends on. Gradients are 0 before.
inline void backward(Node& root) {
  root.grad = 1;
  const std::function<void(Node&)> walk = [&walk](Node& node) { pass_on(node, walk); };
  walk(root);
}
