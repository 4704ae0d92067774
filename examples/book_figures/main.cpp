// Data for the figures of the chapters, as JSON: book_figures NAME. docs/figures/draw.py draws them.

#include <string>

#include "examples/book_figures/figures.h"
#include "kernels/cpu/context.h"
#include "tensor/base/error.h"
#include "trainer/run_main.h"

namespace athanor::examples {
namespace {

struct Figure {
  const char* name;
  nlohmann::json (*compute)();
};
constexpr Figure kFigures[] = {
    {"gradcheck", gradcheck_errors},           {"initialisation", depth_spread},
    {"batch_norm", running_statistics},        {"determinism", last_bit},
    {"activation_memory", step_memory},        {"matrix_product", roof},
    {"convolution_three_ways", convolutions},  {"measuring_under_noise", same_twice},
    {"tensor_cores_by_hand", fragment_owners}, {"attention", attention_memory},
};

std::string names() {
  std::string all;
  for (const Figure& figure : kFigures) all += (all.empty() ? "" : ", ") + std::string(figure.name);
  return all;
}

int run(int argc, char** argv) {
  ATH_CHECK(argc == 2, "book_figures: expected one of {}", names());
  cpu_context().set_threads(1);
  for (const Figure& figure : kFigures) {
    if (std::string(argv[1]) != figure.name) continue;
    fmt::print("{}\n", figure.compute().dump());
    return kExitDone;
  }
  detail::fail<>("book_figures: '{}' must be one of {}", argv[1], names());
}

}  // namespace
}  // namespace athanor::examples

int main(int argc, char** argv) {
  return athanor::run_main(argc, argv, athanor::examples::run);
}
