#include <array>
#include <cstring>
#include <memory>

#include "dist/transports/thread_transport.h"
#include "examples/common/svg.h"
#include "examples/dist_figures/figures.h"
#include "tensor/error.h"

// The ring as its state machines ran it: four ranks, one element per piece. Rank r begins with 2^r in every
// element, so that the bits of a sum say whose values are in it.

namespace athanor::examples {
namespace {

constexpr int kRanks = 4, kAll = (1 << kRanks) - 1;
using Pieces = std::array<std::array<int, kRanks>, kRanks>;  // of rank r, piece p: a bit for each rank in it

struct Step {
  Pieces after;
  std::array<int, kRanks> arrived;  // of rank r: the piece
};

void check(bool holds, const char* what) {
  if (!holds) detail::fail<>("ring_picture: {}", what);
}

struct Half {
  std::vector<Step> steps;
};

/// What `steps` make of `pieces`, from the messages that were sent.
Half replay(Pieces& pieces, const std::vector<std::unique_ptr<Traced>>& ranks,
            const std::vector<Tensor>& buffers, bool adds) {
  Half half;
  for (std::size_t s = 0; s + 1 < kRanks; ++s) {
    Step step{pieces, {}};
    for (std::size_t r = 0; r < kRanks; ++r) {
      const Traced::Message& message = ranks[r]->messages.at(s);
      check(message.to == static_cast<int>((r + 1) % kRanks) && message.bytes.size() == sizeof(std::int32_t),
            "a message must be one piece for the next rank");
      std::int32_t value = 0;
      std::memcpy(&value, message.bytes.data(), sizeof(value));
      const auto piece = static_cast<std::size_t>((message.from - buffers[r].raw_data()) / 4);
      const auto to = static_cast<std::size_t>(message.to);
      check(value == pieces[r][piece], "a rank must send what it has");
      step.after[to][piece] = adds ? step.after[to][piece] | value : value;
      step.arrived[to] = static_cast<int>(piece);
    }
    pieces = step.after;
    half.steps.push_back(step);
  }
  return half;
}

constexpr double kCell = 40, kCellHeight = 24, kRow = 42, kPanel = kRanks * kCell, kGap = 34, kLeft = 74,
                 kTop = 104, kHalfHeight = kRanks * kRow + 92;

// A cell: a stripe for each rank that is in the sum, in its colour.
std::string cell(double x, double y, int bits, bool arrived) {
  std::string out = rect(x + 1, y, kCell - 3, kCellHeight, "empty");
  constexpr double kStripe = (kCell - 3) / kRanks;
  for (int r = 0; r < kRanks; ++r) {
    if (bits >> r & 1) out += rect(x + 1 + r * kStripe, y, kStripe, kCellHeight, fmt::format("c{}", r));
  }
  if (arrived) out += rect(x + 1, y, kCell - 3, kCellHeight, "arrived");
  return out;
}

// The way a piece took from the rank above. From the last rank to the first it leaves below, where the other
// end is named, and comes in above.
std::string arrow(double x, double y_to, bool wraps, double y_bottom) {
  const double middle = x + kCell / 2 - 0.5, tip = y_to - 3, from = y_to - (kRow - kCellHeight) + 2;
  std::string out;
  if (wraps) {
    out += line(middle, y_bottom + 2, middle, y_bottom + 10, "way") +
           fmt::format(R"(<path d="M{:.1f} {:.1f}l-3.5 -5h7z" class="tip"/>)"
                       "\n",
                       middle, y_bottom + 14) +
           text(middle, y_bottom + 27, "tick", "middle", "to rank 0");
    out += line(middle, tip - 11, middle, tip - 2, "way");
  } else {
    out += line(middle, from, middle, tip - 2, "way");
  }
  return out + fmt::format(R"(<path d="M{:.1f} {:.1f}l-3.5 -5h7z" class="tip"/>)"
                           "\n",
                           middle, tip);
}

std::string panel(double x, double y, const std::string& title, const Step& step, bool moved) {
  std::string out = text(x + kPanel / 2, y - 26, "head", "middle", title);
  for (int p = 0; p < kRanks; ++p)
    out += text(x + (p + 0.5) * kCell, y - 10, "tick", "middle", fmt::format("{}", p));
  for (std::size_t r = 0; r < kRanks; ++r) {
    const double row = y + static_cast<double>(r) * kRow + 8;
    for (std::size_t p = 0; p < kRanks; ++p) {
      const bool arrived = moved && step.arrived[r] == static_cast<int>(p);
      const double left = x + static_cast<double>(p) * kCell;
      out += cell(left, row, step.after[r][p], arrived);
      if (arrived) out += arrow(left, row, r == 0, y + 8 + (kRanks - 1) * kRow + kCellHeight);
    }
  }
  return out;
}

std::string row_of_panels(double y, const char* name, const Pieces& before, const Half& half) {
  std::string out = text(24, y - 52, "head", "start", name);
  for (int r = 0; r < kRanks; ++r) {
    const double row = y + r * kRow + 8;
    out += rect(24, row + 7, 10, 10, fmt::format("c{}", r));
    out += text(38, row + 16, "", "start", fmt::format("rank {}", r));
  }
  out += panel(kLeft + 16, y, "before", {before, {}}, false);
  for (std::size_t s = 0; s < half.steps.size(); ++s) {
    out += panel(kLeft + 16 + static_cast<double>(s + 1) * (kPanel + kGap), y, fmt::format("step {}", s),
                 half.steps[s], true);
  }
  return out;
}

}  // namespace

void run_together(std::span<const std::unique_ptr<dist::Collective>> of_ranks) {
  for (const auto& collective : of_ranks) collective->start(0);
  for (bool done = false; !done;) {
    done = true;
    for (const auto& collective : of_ranks) done = collective->advance() && done;
  }
}

std::string ring_picture() {
  dist::ThreadJob job(kRanks);
  std::vector<std::unique_ptr<Traced>> ranks;
  std::vector<std::unique_ptr<dist::Communicator>> comms;
  std::vector<Tensor> buffers;
  std::vector<std::unique_ptr<dist::Collective>> scatters, gathers;
  Pieces pieces{};
  for (int r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<Traced>(job.transport(r)));
    comms.push_back(std::make_unique<dist::Communicator>(
        *ranks.back(), dist::CommunicatorOptions{.algorithm = dist::Algorithm::ring}));
    buffers.push_back(Tensor::from(std::vector<std::int32_t>(kRanks, 1 << r), {kRanks}));
    pieces[static_cast<std::size_t>(r)].fill(1 << r);
    scatters.push_back(comms.back()->reduce_scatter(buffers.back()));
    gathers.push_back(comms.back()->all_gather(buffers.back()));
  }
  const Pieces begin = pieces;
  run_together(scatters);
  const Half scatter = replay(pieces, ranks, buffers, true);
  for (std::size_t r = 0; r < kRanks; ++r) check(pieces[r][r] == kAll, "a rank must own its piece");
  for (const auto& rank : ranks) rank->messages.clear();
  const Pieces middle = pieces;
  run_together(gathers);
  const Half gather = replay(pieces, ranks, buffers, false);
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (std::size_t p = 0; p < kRanks; ++p)
      check(pieces[r][p] == kAll && buffers[r].data<std::int32_t>()[p] == kAll, "everyone must have the sum");
  }

  constexpr double kWidth = kLeft + 16 + kRanks * kPanel + (kRanks - 1) * kGap + 24,
                   kHeight = kTop + 2 * kHalfHeight + 40;
  std::string out = begin_picture(kWidth, kHeight, "A ring of four ranks, as it ran",
                                  R"(
    .empty { fill: none; stroke: #d1d9e0 } .arrived { fill: none; stroke: #1f2328; stroke-width: 2 }
    .way { stroke: #1f2328; stroke-width: 1.5 } .tip { fill: #1f2328 }
    @media (prefers-color-scheme: dark) {
      .empty { stroke: #2a313a } .arrived { stroke: #e6edf3 } .way { stroke: #e6edf3 } .tip { fill: #e6edf3 }
    }
)");
  out += text(24, 34, "title", "start", "A ring of four ranks, as it ran");
  out += row_of_panels(kTop + 22, "reduce_scatter: pieces 0 to 3 of each rank's buffer", begin, scatter);
  out += row_of_panels(kTop + 22 + kHalfHeight, "all_gather", middle, gather);
  out +=
      text(24, kHeight - 36, "muted", "start",
           "A cell is a piece; its stripes say whose values are summed up in it. Framed: what has arrived in "
           "this step, from the rank above");
  out +=
      text(24, kHeight - 18, "muted", "start",
           "(rank 0: from rank 3). Before all_gather, only the piece a rank owns is complete; the others are "
           "leftovers.");
  return out + "</svg>\n";
}

}  // namespace athanor::examples
