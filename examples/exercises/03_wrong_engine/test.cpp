#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "engine.h"

namespace {

Node of(std::vector<Node::Edge> inputs) {
  return Node{std::move(inputs), 0, 0};
}

TEST(Engine, AddsOverAllPaths) {
  Node a, b = of({{&a, 1}, {&a, 1}}), c = of({{&b, 1}, {&b, 1}});
  backward(c);
  EXPECT_EQ(b.grad, 2) << "c = b + b uses b twice";
  EXPECT_NE(a.grad, 6)
      << "b passed on the 1 that had arrived first, and then 2: what it had passed on before went to a again";
  EXPECT_NE(a.grad, 2) << "b passed its gradient on before it was complete, and the second 1 was lost";
  EXPECT_EQ(a.grad, 4) << "c = 4 a";
}

TEST(Engine, AppliesLocalDerivatives) {
  Node x, y, product = of({{&x, 5}, {&y, 3}}), z = of({{&product, 2}, {&x, 7}});  // 2 x y + 7 x at (3, 5)
  backward(z);
  EXPECT_EQ(x.grad, 17) << "d(2 x y + 7 x)/dx = 2 y + 7 at y = 5";
  EXPECT_EQ(y.grad, 6) << "d(2 x y + 7 x)/dy = 2 x at x = 3";
  EXPECT_EQ(z.grad, 1) << "dz/dz";
}

TEST(Engine, RunsEachNodeOnce) {
  Node a, b = of({{&a, 1}, {&a, 1}}), c = of({{&b, 1}, {&b, 1}}), d = of({{&b, 1}, {&c, 1}});
  backward(d);
  EXPECT_EQ(a.grad, 6) << "d = 6 a";
  for (const auto& [node, name] : {std::pair{&a, "a"}, {&b, "b"}, {&c, "c"}, {&d, "d"}})
    EXPECT_EQ(node->runs, 1) << name << " passed its gradient on " << node->runs
                             << " times: once for every path, instead of once when complete";
}

TEST(Engine, LeavesOtherBranchesAlone) {
  Node a, b = of({{&a, 2}}), loss = of({{&b, 3}});
  Node metric = of({{&b, 100}, {&a, 100}});  // uses both, but the loss does not depend on it
  backward(loss);
  EXPECT_EQ(a.grad, 6)
      << "d(loss)/da: a node that the root does not depend on was counted as a user, and waited for";
  EXPECT_EQ(metric.grad, 0) << "the root does not depend on this node";
  EXPECT_EQ(metric.runs, 0) << "the root does not depend on this node";
}

TEST(Engine, EndsOnAChainOfDiamonds) {  // 2^60 paths
  std::vector<std::unique_ptr<Node>> chain;
  chain.push_back(std::make_unique<Node>());
  for (int i = 0; i < 60; ++i) {
    Node* last = chain.back().get();
    chain.push_back(std::make_unique<Node>(of({{last, 0.5}, {last, 0.5}})));
  }
  backward(*chain.back());
  EXPECT_EQ(chain.front()->grad, 1) << "each link is (x + x) / 2";
}

}  // namespace
