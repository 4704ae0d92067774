// The bodies of all_gather_test, with ranks as processes: run by mpirun, once per world size.
#include "tests/support/all_gather_cases.h"
#include "tests/support/contrastive_training.h"
#include "tests/support/mpi_main.h"

namespace athanor::all_gather_mpi_test {

TEST(MpiAllGather, RowsAndGradientsToTheBit) {
  test::check_rows_and_gradients(test::mpi_transport());
}
TEST(MpiAllGather, WorksWithoutGradients) {
  test::check_no_gradient_is_asked_for(test::mpi_transport());
}
TEST(MpiAllGather, ReportsMismatchedRanks) {
  test::check_ranks_that_differ_are_told(test::mpi_transport());
}
TEST(MpiAllGather, LossesOverAllRanksGiveTheGradientsOfOneRank) {
  test::check_losses_over_all_ranks(test::mpi_transport());
}

}  // namespace athanor::all_gather_mpi_test
