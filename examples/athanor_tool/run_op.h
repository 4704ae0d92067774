#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/impl.h"
#include "tensor/state_dict.h"

namespace athanor::tool {

/// An op with its inputs and attributes.
struct OpCall {
  std::string op;
  nlohmann::json attributes;             ///< an object; missing ones take the op's default
  StateDict tensors;                     ///< inputs by name, and dL/dy as `dy` to request gradients
  std::set<std::string> constants = {};  ///< names of inputs that get no gradient
};

/// Reads a safetensors file: its tensors (except expect.*, with which tests compare), and from its metadata
/// `op` and `attributes` (a JSON object). Throws IoError, and ArgumentError if the metadata has no op or
/// attributes are not an object.
OpCall read_op_call(const std::filesystem::path& file);

/// Runs it forward, and backward if it has dy. Returns `y`; with dy, `dNAME` for each differentiable input;
/// and buffers that an op updates (running_mean, ...) under their names. Throws ArgumentError on an unknown
/// op (suggesting the nearest), and on a missing or unknown input or attribute.
StateDict run_op(const OpCall& call, Device device = kCpu, const std::string& impl = "automatic");

std::vector<std::string> op_names();

/// Adds the subcommand: athanor run-op FILE --out FILE [--device cpu] [--impl reference|...].
void add_run_op(CLI::App& app);

}  // namespace athanor::tool
