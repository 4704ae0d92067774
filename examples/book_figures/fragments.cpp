#include "simt/fragments.h"

#include "examples/book_figures/figures.h"
#include "simt/swizzle.h"

namespace athanor::examples {
namespace {

using simt::Element;
using simt::Factor;

/// [row][column] = [lane, register] of a matrix, whose registers `where` locates.
template <class F> nlohmann::json owners(int rows, int columns, int registers, const F& where) {
  nlohmann::json grid(static_cast<std::size_t>(rows),
                      nlohmann::json(static_cast<std::size_t>(columns), nlohmann::json()));
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < registers; ++i) {
      const Element at = where(lane, i);
      grid.at(static_cast<std::size_t>(at.row)).at(static_cast<std::size_t>(at.column)) = {lane, i};
    }
  }
  return grid;
}

/// [line][piece] = the four banks, numbered 0 to 7, in which a piece of 16 bytes lies.
nlohmann::json banks(simt::Swizzle swizzle) {
  nlohmann::json lines;
  for (std::uintptr_t line = 0; line < 8; ++line) {
    nlohmann::json pieces;
    for (std::uintptr_t piece = 0; piece < 8; ++piece)
      pieces.push_back(simt::swizzled(swizzle, line * 128 + piece * 16) / 16 % 8);
    lines.push_back(pieces);
  }
  return lines;
}

}  // namespace

nlohmann::json fragment_owners() {
  return {{"a", owners(16, 8, 4, [](int l, int i) { return simt::fragment::left(Factor::tf32, l, i, 0); })},
          {"b", owners(8, 8, 2, [](int l, int i) { return simt::fragment::right(Factor::tf32, l, i, 0); })},
          {"y", owners(16, 8, 4, [](int l, int i) { return simt::fragment::sums(l, i); })},
          {"straight", banks(simt::Swizzle::none)},
          {"turned", banks(simt::Swizzle::bytes_128)}};
}

}  // namespace athanor::examples
