#include "tests/random_ops/errors.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>

namespace athanor::random_ops {
namespace {

std::string shown(double error) {
  return error < 0     ? ""
         : error == 0  ? "0"
         : error < 100 ? fmt::format("{:.2f}", error)
                       : fmt::format("{:.0f}", error);
}

constexpr char kIntroduction[] = R"(# How far ops are off

This page lists the largest error, over random cases, of every op with floating-point results. Sizes begin at 0, operands
are broadcast and strided, and every option occurs. Values include NaN, infinities, zeros of both signs and denormals.
Each result is compared with that of a reference (`tests/random_ops`) that shares no code with the library. It has naive
loops over numbers with 64 significant bits, and finds gradients with a tape of its own.

The table gives errors in units in the last place of the result's dtype. The unit is that of the result or, if it is
larger, of a bound: each step of the evaluation adds its own rounding error to the errors of its operands (a running
error bound). For a sum, the bound is about the sum of the terms' magnitudes. Half types (f16, bf16) are computed in f32,
so their unit is that of the result plus an f32 unit of the bound. A result that was rounded once has an error of at most
0.5, an exact one 0. `dtype` is that of the result: losses of half types are f32.

PyTorch ran the same cases on the CPU. Our largest error may be twice PyTorch's, and at least half a unit; four units, if
PyTorch's is above half a unit, since sums are in another order. If PyTorch's forward error is 0, ours must be 0. If
PyTorch has no result, ours may be off by four units. Some results are another number: not finite where the exact result
is finite, or at least ten thousand units off. The table omits them; a second one, at the end of the page, counts them.
An empty cell means that nothing was measured, or only such results. Convolutions are computed directly
(`ATHANOR_WINOGRAD=off`): the error of Winograd's algorithm depends on the largest value of a tile, and `*ConvList.*` of
`kernels_test` bounds it by 4e-6 of the largest of all.

The column `cuda` is of our own CUDA kernels, which the emulator ran (preset `simt`); cuDNN and cuBLASLt need a GPU.

The tests `random_ops.100000` and `cuda_random_ops.100000` run 100,000 cases each; none may exceed these limits. The
commands below run the same cases on the CPU and in the emulator, measure PyTorch again, and write this page. The first
two read the limits that `pytorch.sh` wrote before (`~/torch` is a virtual environment with PyTorch and safetensors):

    export ATHANOR_WINOGRAD=off limits="--limits tests/random_ops/pytorch.csv --others tests/random_ops/pytorch_others.csv"
    build/cpu/bin/random_ops --cases 100000 $limits --csv cpu.csv
    build/simt/bin/random_ops --device cuda --cases 100000 $limits --csv cuda.csv
    tests/random_ops/pytorch.sh build/cpu/bin/random_ops ~/torch/bin/python 100000
    build/cpu/bin/random_ops --table docs/reference/op_errors.md --column cpu=cpu.csv --column cuda=cuda.csv --column PyTorch=tests/random_ops/pytorch.csv --others tests/random_ops/pytorch_others.csv

)";

constexpr char kOthers[] = R"(
## Other numbers

In the 100,000 cases so many of PyTorch's results are another number than the reference's. Not each is a mistake: of
values that are not finite, a gradient may be defined in several ways. `tests/random_ops/pytorch_others.csv` lists all
of them, and leaves none out. `random_ops --op OP --case N` shows a case. Ours may be another number only where the list
says that it is.

)";

}  // namespace

void Errors::add(const std::string& op, DType dtype, bool backward, double error) {
  double& largest = all_[{op, dtype}].error[backward ? 1 : 0];
  largest = std::max(largest, error);
}

double Errors::of(const std::string& op, DType dtype, bool backward) const {
  const auto at = all_.find({op, dtype});
  return at == all_.end() ? -1 : at->second.error[backward ? 1 : 0];
}

std::size_t Errors::ops() const {
  std::set<std::string> names;
  for (const auto& [key, largest] : all_) names.insert(key.op);
  return names.size();
}

Errors Errors::read(const std::string& file) {
  std::ifstream in(file);
  ATH_CHECK(in.good(), "random_ops: {} must be readable, but is not", file);
  Errors result;
  std::string line, field[4];
  std::getline(in, line);  // names of columns
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    for (std::string& value : field) {
      value.clear();
      std::getline(fields, value, ',');
    }
    const auto dtype = dtype_named(field[1]);
    ATH_CHECK(dtype.has_value(), "random_ops: {} must name a dtype in every line, but has '{}'", file, line);
    for (const int backward : {0, 1}) {
      const std::string& error = field[2 + backward];
      if (!error.empty()) result.add(field[0], *dtype, backward == 1, std::stod(error));
    }
  }
  return result;
}

void Errors::write(const std::string& file) const {
  std::ofstream out(file);
  out << "op,dtype,forward,backward\n";
  const auto field = [](double error) { return error < 0 ? "" : fmt::format("{:.4g}", error); };
  for (const auto& [key, largest] : all_)
    out << fmt::format("{},{},{},{}\n", key.op, key.dtype, field(largest.error[0]), field(largest.error[1]));
  ATH_CHECK(out.good(), "random_ops: {} must be writable, but is not", file);
}

std::string Errors::text(const Errors& limits) const {
  std::string all = fmt::format("{:<30} {:>5} {:>9} {:>9} {:>9} {:>9}\n", "op", "dtype", "forward",
                                "backward", "peer's", "peer's");
  for (const auto& [key, largest] : all_) {
    all += fmt::format("{:<30} {:>5} {:>9} {:>9} {:>9} {:>9}\n", key.op, name_of(key.dtype),
                       shown(largest.error[0]), shown(largest.error[1]),
                       shown(limits.of(key.op, key.dtype, false)), shown(limits.of(key.op, key.dtype, true)));
  }
  return all;
}

Results Results::read(const std::string& file) {
  std::ifstream in(file);
  ATH_CHECK(in.good(), "random_ops: {} must be readable, but is not", file);
  Results results;
  std::string line, op, number, name, ours;
  std::getline(in, line);  // names of columns
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::getline(fields, op, ',');
    std::getline(fields, number, ',');
    std::getline(fields, name, ',');
    std::getline(fields, ours);
    results.add({op, std::stoull(number), name}, ours == "other");
  }
  return results;
}

void Results::write(const std::string& file) const {
  std::ofstream out(file);
  out << "op,case,result,ours\n";
  for (const auto& [at, ours] : all_)
    out << fmt::format("{},{},{},{}\n", at.op, at.number, at.name, ours ? "other" : "right");
  ATH_CHECK(out.good(), "random_ops: {} must be writable, but is not", file);
}

namespace {

// How many results of each op are other numbers with a peer, and with us.
void write_counts(std::ostream& out, const Results& others) {
  struct Count {
    int forward = 0, backward = 0, ours = 0;
  };
  std::map<std::string, Count> counts;
  for (const auto& [at, ours] : others.all()) {
    Count& count = counts[at.op];
    ++(at.name.starts_with("d") ? count.backward : count.forward);
    count.ours += ours ? 1 : 0;
  }
  out << kOthers
      << "| op | PyTorch forward | PyTorch backward | of these, ours, too |\n|---|---:|---:|---:|\n";
  for (const auto& [op, count] : counts)
    out << fmt::format("| `{}` | {} | {} | {} |\n", op, count.forward, count.backward, count.ours);
}

}  // namespace

void write_table(const std::string& file, const std::vector<std::string>& columns, const Results& others) {
  std::vector<Errors> errors;
  std::string head = "| op | dtype |", rule = "|---|---|";
  std::set<Errors::Key> rows;
  for (const std::string& column : columns) {
    const std::size_t split = column.find('=');
    ATH_CHECK(split != std::string::npos, "random_ops: --column must be NAME=FILE, but is '{}'", column);
    errors.push_back(Errors::read(column.substr(split + 1)));
    const std::string name = column.substr(0, split);
    head += fmt::format(" {} forward | {} backward |", name, name);
    rule += "---:|---:|";
    for (const auto& [key, largest] : errors.back().all()) rows.insert(key);
  }
  std::ofstream out(file);
  out << kIntroduction << head << "\n" << rule << "\n";
  std::string last;
  for (const Errors::Key& key : rows) {
    out << fmt::format("| {} | {} |", key.op == last ? "" : "`" + key.op + "`", key.dtype);
    for (const Errors& column : errors) {
      out << fmt::format(" {} | {} |", shown(column.of(key.op, key.dtype, false)),
                         shown(column.of(key.op, key.dtype, true)));
    }
    out << "\n";
    last = key.op;
  }
  write_counts(out, others);
  ATH_CHECK(out.good(), "random_ops: {} must be writable, but is not", file);
}

}  // namespace athanor::random_ops
