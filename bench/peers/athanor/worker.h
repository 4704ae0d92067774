#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

// Our side of a comparison with a peer: the protocol of bench/peers/README.md over standard input and output.

namespace athanor::peers {

/// 32 bits that look drawn at random: a function of `i` that the other sides have, too.
std::uint32_t noise(std::uint32_t i);
/// The values both sides begin with, [-1, 1) in f32: element i is noise(i + seed).
Tensor made_up(const Shape& shape, std::uint32_t seed);

/// A case made ready: what is timed, and a few values by which both sides show that they computed the same.
struct Ready {
  std::function<void()> run;
  std::vector<double> check;
};

struct PeerCase {
  std::string name;  ///< "adamw/f32/flat": the same on both sides
  double bytes = 0;  ///< what one run must move; 0 where that says nothing
  std::function<Ready()> prepare;
};

/// Answers requests until the input ends. `version` is what the first line says of us. Returns main()'s exit
/// code.
int serve(const std::vector<PeerCase>& cases, const std::string& version = "main");

}  // namespace athanor::peers
