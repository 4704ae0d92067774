#pragma once

// The rows of bench_cuda, by family: each file beside this adds its own. What a row moves and computes is
// what its kernel's header says.

namespace athanor::bench {

void add_augment();
void add_conv();
void add_copy();
void add_dropout();
void add_elementwise();
void add_loss();
void add_matmul();
void add_norm();
void add_pool();
void add_reduce();
void add_resize();
void add_softmax();
void add_update();

}  // namespace athanor::bench
