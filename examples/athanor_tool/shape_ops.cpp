#include "athanor.h"
#include "examples/athanor_tool/ops.h"

// Rows of the op table for ops that move elements and compute nothing.

namespace athanor::tool {
namespace {

Shape shape_of(Arguments& a) {
  Shape shape;
  for (const std::int64_t size : a.attribute("shape", std::vector<std::int64_t>{})) shape.push_back(size);
  return shape;
}

// All of x0, x1, ...
std::vector<Tensor> parts(Arguments& a) {
  std::vector<Tensor> all;
  for (Tensor part = a.optional("x0"); part.defined(); part = a.optional("x" + std::to_string(all.size())))
    all.push_back(part);
  return all;
}

DType dtype_of_call(Arguments& a) {
  const std::string name = a.attribute<std::string>("dtype", "f32");
  const std::optional<DType> dtype = dtype_named(name);
  ATH_CHECK(dtype.has_value(), "cast: dtype must be f64, f32, f16, bf16, i64, i32, u8 or bool, but is '{}'",
            name);
  return *dtype;
}

Tensor run_narrow(Arguments& a) {
  const Tensor x = a.in("x");
  const int axis = a.attribute("axis", 0);
  const std::int64_t start = a.attribute<std::int64_t>("start", 0);
  return narrow(x, axis, start, a.attribute<std::int64_t>("length", 0));
}

Tensor run_flatten(Arguments& a) {
  const Tensor x = a.in("x");
  const int start = a.attribute("start", 1);
  return flatten(x, start, a.attribute("end", -1));
}

}  // namespace

const std::map<std::string, Op>& shape_op_table() {
  static const std::map<std::string, Op> table = {
      {"cast",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return cast(x, dtype_of_call(a));
       }},
      {"cat", [](Arguments& a) { return cat(parts(a), a.attribute("axis", 0)); }},
      {"clone", [](Arguments& a) { return clone(a.in("x")); }},
      {"contiguous", [](Arguments& a) { return contiguous(a.in("x")); }},
      {"expand",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return expand(x, shape_of(a));
       }},
      {"flatten", run_flatten},
      {"narrow", run_narrow},
      {"permute",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return permute(x, a.attribute("order", std::vector<int>{}));
       }},
      {"reshape",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         return reshape(x, shape_of(a));
       }},
      {"select",
       [](Arguments& a) {
         const Tensor x = a.in("x");
         const int axis = a.attribute("axis", 0);
         return select(x, axis, a.attribute<std::int64_t>("index", 0));
       }},
      {"squeeze", [](Arguments& a) { return squeeze(a.in("x"), a.attribute("axis", 0)); }},
      {"stack", [](Arguments& a) { return stack(parts(a), a.attribute("axis", 0)); }},
      {"unsqueeze", [](Arguments& a) { return unsqueeze(a.in("x"), a.attribute("axis", 0)); }},
  };
  return table;
}

}  // namespace athanor::tool
